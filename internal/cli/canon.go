package cli

import (
	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/canon"
)

// newCanon prints a JSON document in canonical form: exactly its bytes, without a newline,
// so that a digest of the output is a digest of the document.
func newCanon() *cobra.Command {
	return &cobra.Command{
		Use:   "canon FILE|-",
		Short: "Print a JSON document in the canonical form of RFC 8785",
		Long: `Print a JSON document in the canonical form of RFC 8785, without a newline at the end.

Ambiguous input is refused with its position: duplicate keys, lone surrogates, invalid UTF-8,
anything after the document, numbers beyond doubles.`,
		Example: `  servo canon manifest.json
  servo canon - < manifest.json | sha256sum`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readInput(cmd, "FILE", args[0], canon.MaxSize)
			if err != nil {
				return err
			}
			canonical, err := canon.JSON(data)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(canonical)
			return wrote(err)
		},
	}
}
