"""Each kind's way from what is seen to what is written."""
