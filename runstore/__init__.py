if __name__ == "runstore":
    raise ImportError("write stride.runstore")
