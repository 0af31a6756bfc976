"""Where rows come from: recordings (`flv`) and the event log. What rows mean is the tables' business."""
