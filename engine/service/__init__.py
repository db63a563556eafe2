"""The engine in its own process.

messages  requests and answers: frozen, versioned
pipe      the child's end of the pipe: connect, send, unpack requests
inbox     requests that wait their turn
serve     the child process: python -m engine serve
"""
