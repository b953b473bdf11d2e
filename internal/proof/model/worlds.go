package model

import "slices"

// Named returns the world of a name.
func Named(name string) World {
	for _, w := range Worlds() {
		if w.Name == name {
			return w
		}
	}
	panic("model: unknown world " + name)
}

// Worlds are the worlds that the tests explore. Some begin with leases held, to keep the search
// short.
func Worlds() []World {
	return slices.Concat(flowWorlds(), repeatWorlds(), cursorWorlds(), batchWorlds(), handoffWorlds(), claimWorlds())
}

func admission() Actor { return Actor{Name: "admission", Role: Admission} }
func reaper() Actor    { return Actor{Name: "reaper", Role: Reaper} }
func cancel() Actor    { return Actor{Name: "canceller", Role: Canceller} }

// succeeds and mayFail are what a worker may report.
func succeeds() []Kind { return []Kind{Complete} }
func mayFail() []Kind  { return []Kind{Complete, Fail} }

// flowWorlds are about single tasks and tasks that depend on each other.
func flowWorlds() []World {
	return []World{
		{
			Name:     "one task",
			Tasks:    []Task{{In: Ready}},
			Attempts: 2, SeparateStart: true,
			Actors: []Actor{
				admission(), reaper(), cancel(),
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: []Kind{Complete, Fail, Yield}},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "chain",
			Tasks:    []Task{{In: Ready}, {In: Waiting, Ups: set(0)}},
			Attempts: 1,
			Actors: []Actor{
				admission(), reaper(), cancel(),
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: mayFail()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: mayFail()},
			},
		},
		{
			Name:     "withdrawn from a pool",
			Tasks:    []Task{{In: Ready}},
			Attempts: 2, SeparateStart: true, Lost: 1,
			Actors: []Actor{
				admission(), reaper(), cancel(),
				{Name: "pools", Role: Withdrawer},
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "fan-in",
			Tasks:    []Task{{In: Leases}, {In: Leases}, {In: Waiting, Ups: set(0, 1)}},
			Attempts: 1, Crashes: 1,
			Actors: []Actor{
				admission(), reaper(), cancel(),
				{Name: "worker A", Role: Worker, Max: 1, Holds: set(0), Verdicts: mayFail()},
				{Name: "worker B", Role: Worker, Max: 1, Holds: set(1), Verdicts: succeeds()},
			},
		},
		{
			Name:     "fan-out",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}, {}},
			Mapped:   set(2),
			Attempts: 1, Lost: 1,
			Actors: []Actor{
				admission(), cancel(),
				{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: []Kind{Complete, FanOut}},
				{Name: "worker B", Role: Worker, Max: 2, Verdicts: mayFail()},
				{Name: "worker C", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "diamond",
			Tasks:    []Task{{In: Leases}, {In: Leases}, {In: Waiting, Ups: set(0, 1)}, {In: Waiting, Ups: set(2)}},
			Attempts: 1, Lost: 1,
			Actors: []Actor{
				admission(), cancel(),
				{Name: "worker A", Role: Worker, Holds: set(0), Max: 1, Verdicts: mayFail()},
				{Name: "worker B", Role: Worker, Holds: set(1), Max: 1, Verdicts: mayFail()},
			},
		},
	}
}

// repeatWorlds are about lost answers, signals, and late workers.
func repeatWorlds() []World {
	return []World{
		{
			Name:     "claims whose answer is lost",
			Tasks:    []Task{{In: Pool}, {In: Pool}},
			Attempts: 2, Lost: 1,
			Actors: []Actor{
				cancel(), reaper(), admission(),
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "reports whose answer is lost",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}},
			Attempts: 2, Lost: 1,
			Actors: []Actor{
				admission(), reaper(), cancel(),
				{Name: "worker A", Role: Worker, Holds: set(0), Max: 1, Verdicts: mayFail()},
			},
		},
		{
			Name:     "wake-up without polling",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}},
			Attempts: 2, Lost: 1, LoseReportsOnly: true, Duty: true, Signals: true,
			Actors: []Actor{
				admission(), reaper(),
				{Name: "worker A", Role: Worker, Holds: set(0), Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "wake-up with polling",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}},
			Attempts: 2, Crashes: 1, Signals: true, Polls: true,
			Actors: []Actor{
				admission(), reaper(),
				{Name: "worker A", Role: Worker, Holds: set(0), Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "parked claims",
			Tasks:    []Task{{In: Leases}},
			Attempts: 2, Signals: true, Parked: true, SeparateStart: true,
			Actors: []Actor{
				admission(), reaper(),
				{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: succeeds()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
	}
}

// cursorWorlds are about cursors that workers move.
func cursorWorlds() []World {
	return []World{{
		Name:     "cursor",
		Tasks:    []Task{{In: Leases}},
		Attempts: 2, Lost: 1, LoseReportsOnly: true, ClaimsAdmit: true, Duty: true,
		Actors: []Actor{
			reaper(), cancel(),
			{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: []Kind{Advance, Yield, Fail}},
			{Name: "worker B", Role: Worker, Max: 1, Verdicts: []Kind{Advance, Complete}},
		},
	}}
}

// batchWorlds are about transactions over several runs, and the admission duty.
func batchWorlds() []World {
	return []World{
		{
			Name:     "stopped worker",
			Tasks:    []Task{{In: Leases}},
			Attempts: 2, SeparateStart: true,
			Actors: []Actor{
				admission(), reaper(),
				{Name: "reaper 2", Role: Reaper},
				{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: mayFail()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "batches over two runs",
			Tasks:    []Task{{In: Pool}, {Run: 1, In: Pool}},
			Attempts: 1, SeparateStart: true,
			Actors: []Actor{
				{Name: "worker A", Role: Worker, Max: 2, Verdicts: succeeds()},
				reaper(), cancel(),
			},
		},
		{
			Name:     "mixed batches",
			Tasks:    []Task{{In: Leases}, {Run: 1, In: Leases}, {In: Waiting, Ups: set(0)}},
			Attempts: 1, Endless: true,
			Actors: []Actor{
				{Name: "batch A", Role: Mixer, Holds: set(0)},
				{Name: "batch B", Role: Mixer, Holds: set(1)},
			},
		},
		{
			Name:     "admission duty and quota",
			Tasks:    []Task{{In: Ready}, {In: Ready}},
			Attempts: 2, Duty: true, Quota: 1, Lost: 1, Endless: true,
			Actors: []Actor{
				admission(),
				{Name: "heir", Role: Admission, Heir: true},
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
	}
}

// handoffWorlds are about handoffs.
func handoffWorlds() []World {
	return []World{
		{
			Name:     "handoff and cancel",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}, {In: Retry}},
			Attempts: 1, Duty: true, Handoff: true,
			Actors: []Actor{
				admission(), reaper(), cancel(),
				{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: succeeds()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "handoff and quota",
			Tasks:    []Task{{In: Retry}, {In: Retry}},
			Attempts: 1, Duty: true, Quota: 1, Handoff: true,
			Actors: []Actor{
				admission(), reaper(),
				{Name: "reaper 2", Role: Reaper},
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "handoff and claims",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}, {In: Pool}},
			Attempts: 1, Duty: true, Lost: 1, Handoff: true, Patience: true,
			Actors: []Actor{
				admission(),
				{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: succeeds()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "handoff and wake-up",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}},
			Attempts: 1, Duty: true, Lost: 1, LoseReportsOnly: true, Signals: true, Parked: true, Handoff: true,
			Actors: []Actor{
				admission(),
				{Name: "worker A", Role: Worker, Holds: set(0), Max: 1, Verdicts: succeeds()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "handoff and the start of a run",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}, {Run: 1, In: Waiting}},
			Attempts: 1, Duty: true, Handoff: true, Endless: true,
			Actors: []Actor{
				admission(),
				{Name: "batch", Role: Mixer, Holds: set(0)},
				{Name: "starter", Role: Starter},
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
	}
}

// claimWorlds are about claims that admit.
func claimWorlds() []World {
	return []World{
		{
			Name:     "claims that admit and quota",
			Tasks:    []Task{{In: Ready}, {In: Ready}},
			Attempts: 1, Duty: true, Quota: 1, ClaimsAdmit: true, Lost: 1, Endless: true,
			Actors: []Actor{
				admission(),
				{Name: "worker A", Role: Worker, Max: 2, Verdicts: succeeds()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "claims that admit and cancel",
			Tasks:    []Task{{In: Ready}, {In: Leases}},
			Attempts: 2, Duty: true, ClaimsAdmit: true,
			Actors: []Actor{
				admission(), cancel(),
				{Name: "worker A", Role: Worker, Holds: set(1), Verdicts: []Kind{Complete, Yield}},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "claims that admit and wake-up",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}, {In: Waiting, Ups: set(0)}},
			Attempts: 1, Duty: true, Signals: true, Parked: true, ClaimsAdmit: true,
			Actors: []Actor{
				{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: succeeds()},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
				{Name: "worker C", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
		{
			Name:     "claims that admit and handoff",
			Tasks:    []Task{{In: Leases}, {In: Waiting, Ups: set(0)}, {Run: 1, In: Waiting}, {Run: 1, In: Ready}},
			Attempts: 1, Duty: true, Quota: 2, Handoff: true, ClaimsAdmit: true, Endless: true,
			Actors: []Actor{
				{Name: "worker A", Role: Worker, Holds: set(0), Verdicts: succeeds()},
				{Name: "starter", Role: Starter},
				{Name: "worker B", Role: Worker, Max: 1, Verdicts: succeeds()},
			},
		},
	}
}
