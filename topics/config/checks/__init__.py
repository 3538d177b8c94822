"""Settings that are valid singly but contradict each other, one module for each subject."""
