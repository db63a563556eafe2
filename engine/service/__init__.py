"""The engine in its own process.

messages  requests and answers: frozen, versioned
serve     the child process: python -m engine serve
"""
