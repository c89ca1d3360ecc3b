"""What ``planted.py`` is made of: faults, how they are written into a model, sessions, choices."""
