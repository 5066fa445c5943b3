"""Which properties of a message cross doors, and how: the table, and the way in and out."""
