if __name__ == "utils":
    raise ImportError("write stride.utils")
