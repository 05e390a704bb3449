if __name__ == "trainer_callbacks":
    raise ImportError("write stride.trainer_callbacks")
