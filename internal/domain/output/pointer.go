package output

import (
	"fmt"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/quality"
)

// State is the state of a version.
type State string

// The states of a version.
const (
	Promoted    State = "PROMOTED"    // it is the current version, or was
	Superseded  State = "SUPERSEDED"  // a newer version was promoted before it arrived
	Quarantined State = "QUARANTINED" // it waits for review
	Rejected    State = "REJECTED"    // a reviewer discarded it
	Wiped       State = "WIPED"       // its files were deleted
)

// Version is one version of a partition as decisions see it.
type Version struct {
	Token int64
	State State
}

// Pointer names the promoted version of one partition of an asset. The zero value has none.
type Pointer struct {
	Current int64 // token of the promoted version; 0 is none
	Highest int64 // highest token that was ever promoted
}

// Commit decides about the version of a completing attempt: it becomes current unless the gate keeps
// it, or a newer version was promoted before. A blocked version is never committed.
func (p Pointer) Commit(token int64, gate quality.Gate) (Pointer, Version, error) {
	switch {
	case token <= 0:
		return p, Version{}, fmt.Errorf("a version has token %d", token)
	case gate == quality.Quarantine:
		return p, Version{token, Quarantined}, nil
	case !gate.Promotes():
		return p, Version{}, fmt.Errorf("a version with gate %q is committed", gate)
	case token <= p.Highest:
		return p, Version{token, Superseded}, nil
	}
	return Pointer{Current: token, Highest: token}, Version{token, Promoted}, nil
}

// Approve promotes a quarantined version. Expected is the current version that the reviewer saw.
// Force approves although another version is current, or a newer one was promoted: then the pointer
// may move backwards.
func (p Pointer) Approve(v Version, expected int64, force bool) (Pointer, Version, error) {
	if v.State != Quarantined {
		return p, v, conflict(fmt.Sprintf("version %d is %s, not QUARANTINED", v.Token, v.State), "list quarantined versions with: servo quarantine list")
	}
	if !force {
		if err := p.expect(expected); err != nil {
			return p, v, err
		}
		if v.Token < p.Highest {
			return p, v, conflict(fmt.Sprintf("version %d is older than the promoted version %d", v.Token, p.Highest), "pass --force to make the older version current")
		}
	}
	v.State = Promoted
	return Pointer{Current: v.Token, Highest: max(p.Highest, v.Token)}, v, nil
}

// Reject discards a quarantined version.
func (v Version) Reject() (Version, error) {
	if v.State != Quarantined {
		return v, conflict(fmt.Sprintf("version %d is %s, not QUARANTINED", v.Token, v.State), "list quarantined versions with: servo quarantine list")
	}
	v.State = Rejected
	return v, nil
}

// Rollback makes a version current that was promoted before. The highest token stays, so attempts
// that are older than the version rolled back from cannot return by completing late.
func (p Pointer) Rollback(to Version, expected int64, force bool) (Pointer, error) {
	if to.State != Promoted {
		return p, conflict(fmt.Sprintf("version %d is %s and was never promoted", to.Token, to.State), "choose a version with state PROMOTED")
	}
	if !force {
		if err := p.expect(expected); err != nil {
			return p, err
		}
	}
	p.Current = to.Token
	return p, nil
}

// Wipe deletes a version. The current one is wiped by force only: its partition then has none.
func (p Pointer) Wipe(v Version, force bool) (Pointer, Version, error) {
	switch {
	case v.State == Wiped:
		return p, v, nil
	case v.Token == p.Current && !force:
		return p, v, conflict(fmt.Sprintf("version %d is current", v.Token), "roll back to another version first, or pass --force")
	case v.Token == p.Current:
		p.Current = 0
	}
	v.State = Wiped
	return p, v, nil
}

func (p Pointer) expect(current int64) error {
	if p.Current == current {
		return nil
	}
	return conflict(fmt.Sprintf("version mismatch: expected %d, found %d", current, p.Current), "review the current version, or pass --force")
}

func conflict(message, remedy string) error {
	return fault.New(fault.Conflict, message, fault.Remedy(remedy))
}

// Dependents is what happens to the tasks that wait for a quarantined upstream.
type Dependents string

// The three branches.
const (
	Run             Dependents = "RUN"                  // every upstream has a version to read
	SkipFailed      Dependents = "UPSTREAM_FAILED"      // an upstream failed
	SkipQuarantined Dependents = "UPSTREAM_QUARANTINED" // an upstream is quarantined and has no good version
)

// Upstream is the end of one upstream of a task.
type Upstream struct {
	Failed      bool // failed, or skipped
	Quarantined bool
	LastGood    bool // its partition has a promoted version
}

// DependentsOf decides about a task whose upstreams have ended. A failed upstream weighs more than a
// quarantined one.
func DependentsOf(upstreams []Upstream) Dependents {
	decision := Run
	for _, u := range upstreams {
		switch {
		case u.Failed:
			return SkipFailed
		case u.Quarantined && !u.LastGood:
			decision = SkipQuarantined
		}
	}
	return decision
}
