"""What a step must compute: exact counts of FLOPs and bytes, no hardware and no time."""
