"""What ``tensorrt.py`` is made of: settings, network, build, plan, runtime; no engine by itself."""
