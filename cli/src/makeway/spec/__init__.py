"""A job's specification as people give it: a file, flags, or both; flags beat the file.

- ``flags``: one flag for each field of ``JobSpec``, made from the model, so that none can be missing
- ``build``: puts both together, validates, and says what is wrong in the words of whoever typed it
"""
