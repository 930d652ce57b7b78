"""This server beside its neighbours, on one scripted upstream over HTTP: `make bench`."""
