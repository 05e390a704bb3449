if __name__ == "publishing":
    raise ImportError("write stride.publishing")
