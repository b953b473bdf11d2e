package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTime is the longest time that a shell waits for names.
const completionTime = 2 * time.Second

// nameSource returns names of a server.
type nameSource func(s *session, ctx context.Context) ([]string, error)

// completion offers names for the arguments, from a source for each. Errors are dropped: a shell
// cannot show them.
func completion(sources ...nameSource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(sources) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, sources[len(args)])
	}
}

// flagCompletion offers names for a flag.
func flagCompletion(source nameSource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return complete(cmd, source)
	}
}

// completeStates offers the states that --state takes.
func completeStates(cmd *cobra.Command, known map[string]int32) {
	names := strings.Split(strings.ToLower(strings.Join(stateNames(known), ",")), ",")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails if called twice
}

// completeFlag offers the names of a source for a flag.
func completeFlag(cmd *cobra.Command, flag string, source nameSource) {
	_ = cmd.RegisterFlagCompletionFunc(flag, flagCompletion(source)) // fails if called twice
}

func complete(cmd *cobra.Command, source nameSource) ([]string, cobra.ShellCompDirective) {
	s, err := connect(cmd, completionTime/4)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = s.client.Close() }() // its calls are over
	s.reportTo(func(string) {})
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	found, err := source(s, ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
