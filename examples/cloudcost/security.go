package cloudcost

import (
	"cmp"
	"context"
	"slices"

	"go.arco.dev/servo"
)

// AuditLog is what security/extract gives: where the changes of an account are.
type AuditLog struct {
	Until string `json:"until"`
	File  File   `json:"file"`
}

// SecurityExtract makes security/extract: the audit log of the account, region by region.
// Three regions need no fan-out: one task walks through them.
func (a *Assets) SecurityExtract(ctx context.Context, task *servo.Task, p Params) (AuditLog, error) {
	cloud, err := p.signIn()
	if err != nil {
		return AuditLog{}, err
	}
	log := AuditLog{Until: a.last(p)}
	days, err := daysUntil(log.Until, p.Days)
	if err != nil {
		return AuditLog{}, err
	}
	var changes []Change
	regions := cloud.Regions()
	for i, region := range regions {
		task.Progress(servo.Progress{Phase: "EXTRACT", Stage: region, Fraction: share(i, len(regions)), RecordsExtracted: int64(len(changes))})
		for _, day := range days {
			if err := p.wait(ctx); err != nil {
				return AuditLog{}, err
			}
			changes = append(changes, cloud.Changes(region, day)...)
		}
	}
	task.Progress(servo.Progress{Phase: "EXTRACT", Stage: "write", Fraction: 1, RecordsExtracted: int64(len(changes))})
	log.File, err = write(a.lake, task, fileOf(task, p, "security", "extract"), changes)
	task.Log().Info("extracted", "provider", p.Provider, "account", p.Account, "changes", len(changes), "until", log.Until)
	return log, err
}

// Severity is the urgency of a finding.
type Severity string

// The severities, the worst first.
const (
	Critical Severity = "CRITICAL"
	High     Severity = "HIGH"
	Medium   Severity = "MEDIUM"
)

// severities is the order in which they are listed.
func severities() []Severity { return []Severity{Critical, High, Medium} }

// judge returns the severity of a change. Most changes are harmless.
func judge(c Change) (s Severity, concerning bool) {
	switch c.Kind {
	case "bucket-made-public":
		return Critical, true
	case "admin-granted":
		return High, true
	case "key-created", "port-opened":
		return Medium, true
	}
	return "", false
}

// Finding is a change that needs a review.
type Finding struct {
	Severity Severity `json:"severity"`
	Change
}

// Findings is what security/transform gives.
type Findings struct {
	Until    string `json:"until"`
	Changes  int    `json:"changes"`  // how many were judged
	Harmless int    `json:"harmless"` // of them; the others are in the file
	File     File   `json:"file"`
}

// SecurityTransform makes security/transform: it judges the changes, and sorts what is left
// by severity.
func (a *Assets) SecurityTransform(ctx context.Context, task *servo.Task, p Params) (Findings, error) {
	log, err := servo.Upstream[AuditLog](ctx, task, "security/extract")
	if err != nil {
		return Findings{}, err
	}
	changes, err := read[Change](a.lake, log.File)
	if err != nil {
		return Findings{}, err
	}
	findings := Findings{Until: log.Until, Changes: len(changes)}
	task.Progress(servo.Progress{Phase: "TRANSFORM", Stage: "judge", Fraction: 0.2})
	var rows []Finding
	for _, change := range changes {
		if severity, concerning := judge(change); concerning {
			rows = append(rows, Finding{Severity: severity, Change: change})
		} else {
			findings.Harmless++
		}
	}
	task.Progress(servo.Progress{Phase: "TRANSFORM", Stage: "sort", Fraction: 0.6, RecordsTransformed: int64(len(changes))})
	slices.SortStableFunc(rows, func(x, y Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities(), x.Severity), slices.Index(severities(), y.Severity)),
			cmp.Compare(y.Day, x.Day), // the newest first
		)
	})
	findings.File, err = write(a.lake, task, fileOf(task, p, "security", "transform"), rows)
	task.Log().Info("judged", "changes", findings.Changes, "harmless", findings.Harmless, "findings", len(rows))
	return findings, err
}

// Report is what security/load gives: the account's findings at a glance.
type Report struct {
	Provider string           `json:"provider"`
	Account  string           `json:"account"`
	Until    string           `json:"until"`
	Days     int              `json:"days"`
	Changes  int              `json:"changes"`
	Findings map[Severity]int `json:"findings"`
	First    []Finding        `json:"first,omitempty"` // what to look at first
}

// maxFirst keeps the result small: all findings are in the file.
const maxFirst = 5

// SecurityLoad makes security/load: the report that the security team reads.
func (a *Assets) SecurityLoad(ctx context.Context, task *servo.Task, p Params) (Report, error) {
	findings, err := servo.Upstream[Findings](ctx, task, "security/transform")
	if err != nil {
		return Report{}, err
	}
	task.Progress(servo.Progress{Phase: "LOAD", Stage: "read", Fraction: 0.1})
	rows, err := read[Finding](a.lake, findings.File)
	if err != nil {
		return Report{}, err
	}
	if len(rows)+findings.Harmless != findings.Changes {
		return Report{}, doesNotAddUp("%d findings and %d harmless of %d changes", len(rows), findings.Harmless, findings.Changes)
	}
	report := Report{
		Provider: p.Provider, Account: p.Account, Until: findings.Until, Days: p.Days, Changes: findings.Changes,
		Findings: map[Severity]int{}, First: rows[:min(len(rows), maxFirst)],
	}
	for _, finding := range rows {
		report.Findings[finding.Severity]++
	}
	task.Progress(servo.Progress{Phase: "LOAD", Stage: "write", Fraction: 0.9, RecordsLoaded: int64(len(rows))})
	file, err := write(a.lake, task, fileOf(task, p, "security", "report"), []Report{report})
	if n := report.Findings[Critical]; n > 0 {
		task.Log().Warn("critical findings need a review", "critical", n)
	}
	task.Log().Info("reported", "account", p.Account, "findings", len(rows), "file", file.Name)
	return report, err
}
