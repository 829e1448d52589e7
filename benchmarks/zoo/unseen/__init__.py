"""Networks in no list of ours: whatever the installed packages of models have."""
