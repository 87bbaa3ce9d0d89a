"""Files that people write for makeway, jobs and policies, and what is wrong with one, by line and column.

- ``reader``: YAML (JSON is YAML) with the place of every value
- ``problems``: what a model refuses, in the words of whoever wrote the file
"""
