"""What a backend's libraries are made by, as a digest: records of measurements are keyed by it."""
