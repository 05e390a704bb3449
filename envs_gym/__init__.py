if __name__ == "envs_gym":
    raise ImportError("write stride.envs_gym")
