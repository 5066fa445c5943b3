"""The doors' common part: the plugin contract, the shared connection, admission, and one folder per protocol."""
import kernel  # noqa: F401  (installs the loader of compiled modules, for the codecs here too)
