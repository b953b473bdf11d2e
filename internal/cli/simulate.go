package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/simulate"
	"go.arco.dev/servo/internal/domain/tenant"
)

// What the table of a report shows of lists; JSON and YAML have all of the answer.
const (
	shownPeaks = 5
	shownNames = 3
)

func newSimulate() *cobra.Command {
	var (
		from, file string
		req        servov1.SimulateRequest
		documents  []document
	)
	return newCall(spec{
		use: "simulate [-f DIR|FILE]", short: "Simulate the slots and runs of a tenant's configs", tenant: true,
		long: `Simulate a tenant's configs: when most runs are created and how many run at once, how long they
wait, which SLAs and quotas are missed, which configs overlap with their own runs, the effect of
clock changes on slots, and which jitter would lower the peaks.

With --file the configs of files are simulated as if they were applied, in place of those of the
same name. Nothing is saved. The files are those of servo configs apply, all of one workspace.

A run is assumed to take the average of the recent runs of its pipeline; without any, a minute.
Paused and disabled configs do not fire, triggers without slots add nothing, and every depends_on
is met.`,
		example: `  servo simulate --days 7
  servo simulate -f configs/acme --tenant acme --slots 50
  servo simulate --from 2027-03-01T00:00:00Z --days 31 -o json`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&from, "from", "", "start, such as 2026-01-31T06:00:00Z (default now)")
			cmd.Flags().Int32Var(&req.Days, "days", 30, "number of days, at most 366")
			cmd.Flags().Int32Var(&req.Slots, "slots", 0, "runs that the workers can execute at once (0: no limit)")
			cmd.Flags().Int32Var(&req.Limit, "limit", simulate.DefaultLimit, "maximum number of entries of each list, at most 1000")
			cmd.Flags().StringVarP(&file, "file", "f", "", "unsaved configs: a file, a directory, or - for standard input")
		},
		check: func(s *session) (err error) {
			if req.GetDays() < 1 || req.GetLimit() < 1 { // 0 would be the server's default
				return usageFault(s.cmd, "--days and --limit must be at least 1")
			}
			if from != "" {
				at, err := instantFlag("--from", from, time.Time{})
				if err != nil {
					return err
				}
				req.From = timestamppb.New(at)
			}
			if file == "" {
				return nil
			}
			if documents, err = readConfigs(s.cmd, file, s.Workspace); err != nil {
				return err
			}
			return addConfigs(&req, documents)
		},
	}, func(ctx context.Context, s *session) error {
		req.Tenant = s.Tenant
		return s.simulate(ctx, &req, documents)
	})
}

func (s *session) simulate(ctx context.Context, req *servov1.SimulateRequest, documents []document) error {
	answer, err := s.client.Simulation().Simulate(ctx, req)
	if err != nil {
		return inFiles(err, documents)
	}
	if n := int(answer.GetIdle()); n > 0 {
		s.report("%s paused or disabled, not simulated", count(n, "config"))
	}
	if n := int(answer.GetWithoutHistory()); n > 0 {
		s.report("%s of pipelines without recent runs: a run is assumed to take %s", count(n, "config"), short(simulate.DefaultDuration))
	}
	var report simulate.Report
	if s.Form.forPeople() {
		if report, err = reportOf(answer); err != nil {
			return err
		}
	}
	width, _ := terminalSize(s.cmd.OutOrStdout())
	return s.show(answer, func(w io.Writer) { reportText(w, s.paint, report, width) })
}

// addConfigs puts the configs of files into a request; it has room for one workspace.
func addConfigs(req *servov1.SimulateRequest, documents []document) error {
	req.Workspace = documents[0].workspace
	for _, d := range documents {
		if cmp.Or(d.workspace, tenant.DefaultWorkspace) != cmp.Or(req.GetWorkspace(), tenant.DefaultWorkspace) {
			return fault.New(fault.InvalidArgument, "is of another workspace than "+documents[0].place(), fault.Field(d.place()+": workspace"),
				fault.Remedy("simulate one workspace at a time; saved configs of others count anyway"))
		}
		req.Configs = append(req.Configs, d.input)
	}
	if len(documents) > configsPerCall || proto.Size(req) > bytesPerCall {
		return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d configs; %d or %d MiB can be simulated before they are saved", len(documents), configsPerCall, bytesPerCall>>20),
			fault.Field("--file"), fault.Remedy("simulate parts of it"))
	}
	return nil
}

// reportOf reads the report of an answer.
func reportOf(answer *servov1.SimulateResponse) (report simulate.Report, err error) {
	data, err := json.Marshal(answer.GetReport().AsMap())
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		return report, fault.New(fault.Internal, "the server's report does not fit: "+err.Error(), fault.Remedy("use a command line of the server's version, or -o json"), fault.Cause(err))
	}
	return report, nil
}

// reportText prints a report: first the totals, then the problems.
func reportText(w io.Writer, p palette, r simulate.Report, width int) {
	fmt.Fprintf(w, "%s to %s: %s, %s, %s\n", r.From.Format(time.RFC3339), r.Until.Format(time.RFC3339),
		count(r.Configs, "config"), count(r.Slots, "slot"), count(r.Fired, "run"))
	for _, line := range totalLines(r) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	_ = simulate.Chart(w, r, width) // errors of the writer are reported when it is flushed
	section(w, p, "Peaks", peakRows(r))
	section(w, p, "SLA misses", lateRows(r))
	section(w, p, "Quota misses", quotaRows(r))
	section(w, p, "Overlaps", overlapRows(r))
	section(w, p, "Timeouts", overrunRows(r))
	section(w, p, "Changes of the clock", clockRows(r))
	section(w, p, "Suggestions", suggestionRows(r))
}

// section is a table under its title, if there is anything in it besides its head.
func section(w io.Writer, p palette, title string, t table) {
	if len(t.rows) < 2 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", p.faint(title))
	t.print(w)
}

// totalLines summarize the slots and runs that are skipped, delayed or late.
func totalLines(r simulate.Report) (lines []string) {
	join := func(title string, parts ...any) {
		var counted []string
		for i := 0; i+1 < len(parts); i += 2 {
			if n, ok := parts[i].(int); ok && n > 0 {
				counted = append(counted, fmt.Sprintf("%d %s", n, parts[i+1]))
			}
		}
		if len(counted) > 0 {
			lines = append(lines, title+": "+strings.Join(counted, ", "))
		}
	}
	join("skipped", r.SkippedOverlap, "by overlap", r.SkippedQuota, "by quota")
	join("waiting", r.WaitedOverlap, "for a run of the same config", r.WaitedQuota, "for a quota", r.WaitedWorkers, "for workers")
	if r.Wait.Runs > 0 {
		lines = append(lines, fmt.Sprintf("wait: half of all runs up to %s, 95 %% up to %s, at most %s",
			short(time.Duration(r.Wait.P50)), short(time.Duration(r.Wait.P95)), short(time.Duration(r.Wait.Max))))
	}
	join("missed", r.SLAMisses, "start later than the SLA", r.Overruns, "timed out", r.Cancelled, "cancelled by the next slot", r.Unstarted, "never start")
	return lines
}

func peakRows(r simulate.Report) (t table) {
	t.add("MINUTE", "SLOTS", "CONFIGS")
	for _, peak := range r.PeakMinutes[:min(len(r.PeakMinutes), shownPeaks)] {
		names := make([]string, len(peak.Configs))
		for i, part := range peak.Configs {
			names[i] = part.Config
		}
		t.add(peak.At.Format(time.RFC3339), strconv.Itoa(peak.Slots), namesText(names, peak.Count))
	}
	return t
}

// namesText is the first of some names, and how many there are beside them.
func namesText(names []string, all int) string {
	shown := names[:min(len(names), shownNames)]
	text := clean(strings.Join(shown, ", "))
	if all > len(shown) {
		text += fmt.Sprintf(" and %d more", all-len(shown))
	}
	return text
}

func lateRows(r simulate.Report) (t table) {
	t.add("CONFIG", "SLOT", "WAITS", "PROMISED")
	for _, late := range r.Late {
		t.add(clean(late.Config), late.Slot.Format(time.RFC3339), short(time.Duration(late.Wait)), short(time.Duration(late.Allowed)))
	}
	if more := r.SLAMisses - len(r.Late); more > 0 && len(r.Late) > 0 {
		t.add(fmt.Sprintf("… and %d more", more))
	}
	return t
}

func quotaRows(r simulate.Report) (t table) {
	t.add("QUOTA", "LIMIT", "WHAT HAPPENS")
	for _, miss := range r.Quotas {
		text := fmt.Sprintf("%s skipped", count(miss.Slots, "slot"))
		if miss.First != nil {
			text += ", the first " + miss.First.Format(time.RFC3339)
		}
		switch {
		case miss.Wait != nil && miss.Limit == 0:
			text = count(miss.Slots, "run") + " that never start"
		case miss.Wait != nil:
			text = fmt.Sprintf("%s wait, at most %s", count(miss.Slots, "run"), short(time.Duration(miss.Wait.Max)))
		}
		t.add(clean(miss.Quota), strconv.Itoa(miss.Limit), text)
	}
	return t
}

func overlapRows(r simulate.Report) (t table) {
	t.add("CONFIG", "OVERLAP", "RUNS TAKE", "SLOTS", "SKIPPED", "WAIT", "CANCELLED")
	for _, o := range r.Overlaps {
		t.add(clean(o.Config), clean(o.Policy), short(time.Duration(o.Duration)), strconv.Itoa(o.Slots), strconv.Itoa(o.Skipped), strconv.Itoa(o.Waited), strconv.Itoa(o.Cancelled))
	}
	return t
}

func overrunRows(r simulate.Report) (t table) {
	t.add("CONFIG", "RUNS TAKE", "THEY MAY", "RUNS")
	for _, o := range r.Overruns {
		t.add(clean(o.Config), short(time.Duration(o.Duration)), short(time.Duration(o.MaxExecution)), strconv.Itoa(o.Runs))
	}
	return t
}

// clockRows omits changes that affect no slots.
func clockRows(r simulate.Report) (t table) {
	t.add("ZONE", "AT", "CLOCK", "EFFECT", "CONFIGS")
	for _, change := range r.ClockChanges {
		clock := "put back"
		if change.Kind == schedule.GapShift {
			clock = "put forward"
		}
		for _, effect := range []string{simulate.EffectMoved, simulate.EffectRepeated, simulate.EffectOnce} {
			var names []string
			slots := 0
			for _, c := range change.Configs {
				if c.Effect == effect {
					names, slots = append(names, c.Config), slots+c.Slots
				}
			}
			if len(names) > 0 {
				t.add(clean(change.Zone), change.At.Format(time.RFC3339), clock, count(slots, "slot")+" "+effectText(effect), namesText(names, len(names)))
			}
		}
		if more := change.Count - len(change.Configs); more > 0 {
			t.add(clean(change.Zone), change.At.Format(time.RFC3339), clock, "-", fmt.Sprintf("… and %d more", more))
		}
	}
	return t
}

func effectText(effect string) string {
	switch effect {
	case simulate.EffectMoved:
		return "moved behind the gap"
	case simulate.EffectRepeated:
		return "fired again"
	default:
		return "fired once, not twice"
	}
}

func suggestionRows(r simulate.Report) (t table) {
	t.add("PEAK", "BECOMES", "JITTER", "OF CONFIGS")
	for _, s := range r.Suggestions {
		peak, becomes := strconv.Itoa(s.Peak), strconv.Itoa(s.Becomes)
		for _, change := range s.Changes {
			names := make([]string, len(change.Configs))
			for i, ref := range change.Configs {
				names[i] = ref.Config
			}
			t.add(peak, becomes, asset.Duration(change.Window).String(), namesText(names, change.Count))
			peak, becomes = "", ""
		}
	}
	return t
}
