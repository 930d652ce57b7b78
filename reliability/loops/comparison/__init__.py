"""Are two calls, two results, two errors the same?"""
