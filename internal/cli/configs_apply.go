package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

const (
	configsPerCall = 1000
	bytesPerCall   = 3 << 20 // a message may have 4 MiB
	shownConfigs   = 200     // of a difference; the others are counted
)

// applyFlags are the flags of the commands that apply configs.
type applyFlags struct{ dryRun, yes bool }

func (f *applyFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show the changes without applying them")
	addYes(cmd, &f.yes)
}

func newConfigsApply() *cobra.Command {
	var (
		file      string
		f         applyFlags
		prune     bool
		labels    []string
		documents []document
	)
	return newCall(spec{
		use: "apply -f DIR|FILE", short: "Create and update configs from files", tenant: true, reason: true,
		long: `Create and update configs from files, and show the changes first: + is new, ~ is changed, with
the old and new value of each field, - is deleted. Configs that no file names are kept, unless
--prune deletes those of the workspaces that the files name; --label limits it to configs with
that label.

Files are YAML or JSON, one config for each document, all of one tenant. In a directory the files
that end in .yaml, .yml or .json are read, and those of the directories below it. The output of
servo configs export and of servo configs get -o yaml can be applied as well.

  name: acme-aws-cost
  pipeline: cost_billing
  parameters: {provider: AWS, account: "4410"}
  trigger: {cron: "0 2 * * *"}
  timezone: Europe/Berlin

All configs are checked before the first is stored: if one is invalid, none is stored.`,
		example: `  servo configs apply -f configs/acme --tenant acme --dry-run
  servo configs apply -f configs/acme --tenant acme --yes --reason "new accounts"`,
		flags: func(cmd *cobra.Command) {
			f.add(cmd)
			cmd.Flags().StringVarP(&file, "file", "f", "", "file, directory, or - for standard input")
			cmd.Flags().BoolVar(&prune, "prune", false, "delete configs of these workspaces that no file names")
			cmd.Flags().StringArrayVar(&labels, "label", nil, "label of configs that --prune may delete, as name=value; repeatable")
		},
		check: func(s *session) (err error) {
			switch {
			case file == "":
				return usageFault(s.cmd, "--file is missing: give a file, a directory, or - for standard input")
			case file == stdinName && !f.yes && !f.dryRun:
				return usageFault(s.cmd, "standard input has the configs; pass --yes or --dry-run")
			}
			documents, err = readConfigs(s.cmd, file, s.Workspace)
			return err
		},
	}, func(ctx context.Context, s *session) (err error) {
		var gone []*servov1.Config
		if prune {
			if gone, err = s.notIn(ctx, documents, labels); err != nil {
				return err
			}
		} else if len(labels) > 0 {
			return usageFault(s.cmd, "--label needs --prune")
		}
		return s.applyConfigs(ctx, documents, gone, f)
	})
}

// applyConfigs saves the configs of documents and deletes those in gone.
func (s *session) applyConfigs(ctx context.Context, documents []document, gone []*servov1.Config, f applyFlags) error {
	calls := callsOf(s.Tenant, documents, s.reason)
	if len(calls) > 1 { // configs that others name are saved first
		calls = callsOf(s.Tenant, namedFirst(documents), s.reason)
		expect(calls)
	}
	would, err := s.sendConfigs(ctx, calls, true)
	if err != nil {
		return err
	}
	for _, c := range would.GetConfigs() {
		if c.GetAction() != servov1.AppliedConfig_UNCHANGED {
			s.warn(c.GetName(), c.GetWarnings())
		}
	}
	if f.dryRun {
		return s.show(would, func(w io.Writer) {
			differences(w, s.paint, would)
			prunedLines(w, s.paint, gone)
			fmt.Fprintf(w, "%s; nothing was applied\n", appliedText(would)+prunedText(gone))
		})
	}
	if would.GetCreated()+would.GetChanged() == 0 && len(gone) == 0 {
		return s.show(would, func(w io.Writer) { fmt.Fprintln(w, appliedText(would)) })
	}
	if s.Form.forPeople() {
		differences(s.cmd.OutOrStdout(), s.paint, would)
		prunedLines(s.cmd.OutOrStdout(), s.paint, gone)
	}
	if !f.yes {
		if err := confirm(s.cmd, fmt.Sprintf("apply %s to %s?", appliedText(would)+prunedText(gone), s.Tenant)); err != nil {
			return err
		}
	}
	done, err := s.sendConfigs(ctx, calls, false)
	if err != nil {
		s.report("applied before the failure: %s", appliedText(done))
		return err
	}
	for i, c := range gone {
		// Forced: the configs that name it are deleted as well (notIn).
		req := &servov1.DeleteConfigRequest{Tenant: s.Tenant, Config: c.GetId(), Version: c.GetVersion(), Reason: s.reason, Force: true}
		if _, err := s.client.Configs().DeleteConfig(ctx, req); err != nil {
			s.report("applied before the failure: %s", appliedText(done)+prunedText(gone[:i]))
			return err
		}
	}
	return s.show(done, func(w io.Writer) {
		fmt.Fprintf(w, "applied to %s: %s\n", clean(s.Tenant), appliedText(done)+prunedText(gone))
	})
}

// configCall is one call with its documents.
type configCall struct {
	request   *servov1.ApplyConfigsRequest
	documents []document
}

// callsOf distributes documents over calls: those of a workspace together, in their order, as many
// as one call permits.
func callsOf(tenant string, documents []document, reason string) (calls []configCall) {
	open, sizes := map[string]int{}, map[string]int{}
	for _, d := range documents {
		size := proto.Size(d.input) + 10 // with its wrapping
		at, ok := open[d.workspace]
		if !ok || len(calls[at].documents) == configsPerCall || sizes[d.workspace]+size > bytesPerCall {
			at = len(calls)
			open[d.workspace], sizes[d.workspace] = at, 0
			calls = append(calls, configCall{request: &servov1.ApplyConfigsRequest{Tenant: tenant, Workspace: d.workspace, Reason: reason}})
		}
		sizes[d.workspace] += size
		calls[at].request.Configs = append(calls[at].request.Configs, d.input)
		calls[at].documents = append(calls[at].documents, d)
	}
	return calls
}

// sendConfigs makes the calls and adds up their answers.
func (s *session) sendConfigs(ctx context.Context, calls []configCall, dryRun bool) (*servov1.ApplyConfigsResponse, error) {
	sum := &servov1.ApplyConfigsResponse{}
	for _, call := range calls {
		call.request.DryRun = dryRun
		answer, err := s.client.Configs().ApplyConfigs(ctx, call.request)
		if err != nil {
			return sum, inFiles(err, call.documents)
		}
		sum.Configs = append(sum.Configs, answer.GetConfigs()...)
		sum.Created += answer.GetCreated()
		sum.Changed += answer.GetChanged()
		sum.Unchanged += answer.GetUnchanged()
	}
	return sum, nil
}

// inFiles names the fields of a problem by the documents that they came from.
func inFiles(err error, documents []document) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok {
		return err
	}
	name := func(field *string) {
		first, rest, _ := strings.Cut(*field, ".")
		index, isIndexed := strings.CutPrefix(first, "configs[")
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if !isIndexed || err != nil || i < 0 || i >= len(documents) {
			return
		}
		if *field = documents[i].place(); rest != "" {
			*field += ": " + strings.TrimPrefix(rest, "spec.")
		}
	}
	name(&p.Field)
	for i := range p.Violations {
		name(&p.Violations[i].Field)
	}
	return err
}

// confirm asks for a confirmation on the terminal.
func confirm(cmd *cobra.Command, question string) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(in.Fd()) {
		return fault.New(fault.InvalidArgument, "stdin is not a terminal; nothing was changed", fault.Field("--yes"), fault.Remedy("pass --yes to confirm"))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" {
		return withExit(exitFailed, errors.New("nothing was changed"))
	}
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return withExit(exitFailed, errors.New("nothing was changed"))
	}
	return nil
}

func appliedText(answer *servov1.ApplyConfigsResponse) string {
	return fmt.Sprintf("%d created, %d changed, %d unchanged", answer.GetCreated(), answer.GetChanged(), answer.GetUnchanged())
}

// differences lists new configs, and the changed fields of others.
func differences(w io.Writer, p palette, answer *servov1.ApplyConfigsResponse) {
	shown := 0
	for _, c := range answer.GetConfigs() {
		if c.GetAction() == servov1.AppliedConfig_UNCHANGED {
			continue
		}
		if shown++; shown > shownConfigs {
			continue
		}
		if c.GetAction() == servov1.AppliedConfig_CREATED {
			fmt.Fprintln(w, p.mark("+ config "+clean(c.GetName())+" ("+clean(text(c.GetAfter(), "pipeline"))+")", "+"))
			continue
		}
		fmt.Fprintln(w, p.mark("~ config "+clean(c.GetName()), "~"))
		for _, line := range fieldChanges(c.GetBefore(), c.GetAfter()) {
			fmt.Fprintln(w, "    "+line)
		}
	}
	if shown > shownConfigs {
		fmt.Fprintf(w, "… and %s more\n", count(shown-shownConfigs, "config"))
	}
}

// fieldChanges lists the old and new values of the fields that differ.
func fieldChanges(before, after *structpb.Struct) (lines []string) {
	old, now := map[string]string{}, map[string]string{}
	leaves(old, "", before.AsMap())
	leaves(now, "", after.AsMap())
	names := maps.Clone(old)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := old[name]
		is, has := now[name]
		switch {
		case had && !has:
			lines = append(lines, fmt.Sprintf("%s: %s → not set", name, was))
		case has && !had:
			lines = append(lines, fmt.Sprintf("%s: not set → %s", name, is))
		case was != is:
			lines = append(lines, fmt.Sprintf("%s: %s → %s", name, was, is))
		}
	}
	return lines
}

// leaves stores the values of an object by their paths.
func leaves(into map[string]string, path string, object map[string]any) {
	for key, value := range object {
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			leaves(into, below(path, key), inner)
			continue
		}
		const most = 200
		data, err := json.Marshal(value)
		if err != nil {
			data = []byte("?")
		}
		into[below(path, key)] = clip(string(data), most)
	}
}
