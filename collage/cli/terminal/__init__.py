"""What all commands share: options, output, errors in one line, progress, sample files."""
