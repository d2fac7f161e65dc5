"""One training loop: batches, optimizers, schedules, checkpoints, precision, several processes."""
