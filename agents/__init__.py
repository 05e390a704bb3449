if __name__ == "agents":
    raise ImportError("write stride.agents")
