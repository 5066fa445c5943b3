"""The catalogue's schema, step by step. Run by `kernel.state.catalogue` when it is opened, in one transaction."""
