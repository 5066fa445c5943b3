"""What Gatehouse keeps in SQL, on PostgreSQL: run by `make interop`, which installs the server."""
