"""Exercises in the formats of courses: autograders, notebooks, quizzes, printed sheets, gradebooks, a competition."""
