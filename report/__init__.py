if __name__ == "report":
    raise ImportError("write stride.report")
