if __name__ == "config":
    raise ImportError("write stride.config")
