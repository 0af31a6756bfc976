"""The jobs: they read sources, write tables and say what they did. What rows mean is the tables' business."""
