"""Where models come from: sources, conversion, the folder of prepared ones, how much memory they need."""
