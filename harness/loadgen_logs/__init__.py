"""Readers of LoadGen's summary, detail and accuracy logs."""
