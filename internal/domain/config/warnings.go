package config

// Warnings returns combinations of settings whose effect is easily missed. Such a spec is valid.
func (s Spec) Warnings() (warnings []string) {
	if s.Catchup.Policy == CatchupAll && s.Catchup.MaxSlots != 1 {
		const instead = "; use overlap: buffer_all to run all of them, or catchup: {policy: latest}"
		switch s.Overlap {
		case OverlapSkip:
			warnings = append(warnings, "catchup: all with overlap: skip runs only the oldest missed slot and skips the others while its run has not ended"+instead)
		case OverlapBufferOne:
			warnings = append(warnings, "catchup: all with overlap: buffer_one runs only the two oldest missed slots and skips the others while their runs have not ended"+instead)
		case OverlapCancelRunning:
			warnings = append(warnings, "catchup: all with overlap: cancel_running cancels the runs of all missed slots but the newest"+instead)
		case OverlapBufferAll, OverlapAllow:
		}
	}
	return warnings
}
