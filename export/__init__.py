if __name__ == "export":
    raise ImportError("write stride.export")
