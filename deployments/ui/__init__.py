"""The control room at `/`: pages that show why each request went where it went, and take an operator's orders."""
