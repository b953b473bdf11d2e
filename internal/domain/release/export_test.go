package release

// Chance is the p-value of the test.
func Chance(e Evidence) float64 { return e.chance() }
