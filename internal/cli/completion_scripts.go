package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// newCompletion prints the scripts with which shells complete servo's commands and flags.
func newCompletion() *cobra.Command {
	shell := func(name, use string, generate func(root *cobra.Command, w io.Writer) error) *cobra.Command {
		return &cobra.Command{
			Use:     name,
			Short:   "Print the completion script for " + name,
			Example: "  " + use,
			Args:    exactly(0),
			RunE: func(cmd *cobra.Command, _ []string) error {
				return wrote(generate(cmd.Root(), cmd.OutOrStdout()))
			},
		}
	}
	return group("completion", "Print the completion script for a shell",
		shell("bash", "source <(servo completion bash)", func(root *cobra.Command, w io.Writer) error {
			return root.GenBashCompletionV2(w, true)
		}),
		shell("fish", "servo completion fish | source", func(root *cobra.Command, w io.Writer) error {
			return root.GenFishCompletion(w, true)
		}),
		shell("powershell", "servo completion powershell | Out-String | Invoke-Expression", func(root *cobra.Command, w io.Writer) error {
			return root.GenPowerShellCompletionWithDesc(w)
		}),
		shell("zsh", "source <(servo completion zsh)", func(root *cobra.Command, w io.Writer) error {
			return root.GenZshCompletion(w)
		}),
	)
}
