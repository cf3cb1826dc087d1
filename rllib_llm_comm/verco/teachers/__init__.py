"""Teachers say what messages should be; labels are collected from them."""
