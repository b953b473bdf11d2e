package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionTime is how long a shell waits for names that a server knows.
const completionTime = 2 * time.Second

// completion asks a server for the names that an argument may have. A server that is away
// has none: a shell is no place for errors.
func completion(names func(s *session, ctx context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s, err := connect(cmd, completionTime/4)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = s.client.Close() }() // its calls are over
		s.sayTo(func(string) {})
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		found, err := names(s, ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
