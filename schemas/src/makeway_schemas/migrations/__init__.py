"""Numbered migrations: one SQL file each in ``sql/``; expand then contract; never edited once released."""
