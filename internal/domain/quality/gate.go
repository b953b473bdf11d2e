package quality

// Gate is the decision about a version, made from the results of its checks.
type Gate string

// The decisions, from permissive to strict.
const (
	Allow      Gate = "ALLOW"      // promote
	Warn       Gate = "WARN"       // promote, and flag the run
	Quarantine Gate = "QUARANTINE" // keep without promoting; the task succeeds
	Block      Gate = "BLOCK"      // discard; the task fails
)

// Promotes reports whether the version becomes current.
func (g Gate) Promotes() bool { return g == Allow || g == Warn }

// Decide computes the gate from the declared checks and the reported results. Severities are those
// of the declarations, so a report cannot weaken them. A declared check without a result counts as
// failed, and so does a result that was skipped although no critical check failed.
func Decide(checks []Check, results []Result, quarantine bool) Gate {
	reported := make(map[string]Result, len(results))
	for _, r := range results {
		if earlier, twice := reported[r.Name]; twice && !earlier.Passed {
			continue // the worse of two results counts
		}
		reported[r.Name] = r
	}
	failed := map[Severity]bool{}
	for _, c := range checks {
		if r, ran := reported[c.DisplayName()]; ran && r.Passed && !r.Skipped {
			continue
		}
		severity := c.Severity
		if severity == "" {
			severity = Critical
		}
		failed[severity] = true
	}
	switch {
	case failed[Critical] && quarantine:
		return Quarantine
	case failed[Critical]:
		return Block
	case failed[Error]:
		return Warn
	}
	return Allow
}

// FirstFailure is the first failed check of the highest severity, for messages.
func FirstFailure(checks []Check, results []Result) (Result, bool) {
	severities := make(map[string]Severity, len(checks))
	for _, c := range checks {
		severities[c.DisplayName()] = c.Severity
	}
	for i := len(Severities) - 1; i >= 0; i-- {
		for _, r := range results {
			if r.Failed() && severities[r.Name] == Severities[i] {
				return r, true
			}
		}
	}
	return Result{}, false
}
