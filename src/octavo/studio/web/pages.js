// The pages in the order of the navigation. The page NAME is the file pages/NAME.js, which exports
// show(main, params, signal): it fills `main` from the settings of the address, and ends when the signal is aborted.

export const PAGES = {
  runs: "Runs", read: "Read", inspect: "Inspect", write: "Write", classify: "Classify", tag: "Tag", answer: "Answer",
  exercises: "Exercises",
};

/** Former names of pages, which addresses may still have. */
export const RENAMED = { inside: "inspect" };
