"""The attack on octavo that anyone can repeat: kills, full disks, damaged files, hostile requests, counted by class."""
