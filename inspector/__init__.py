if __name__ == "inspector":
    raise ImportError("write stride.inspector")
