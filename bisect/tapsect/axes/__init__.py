"""What cures a failure: settings of the engine, precision of single nodes, versions.

Each module searches along one axis; what it is allowed to try, and what counts as cured, is the
caller's.
"""
