//go:build !linux

package host

import "errors"

var errPlatform = errors.New("hosts need Linux: its supervisor is a child subreaper")

func becomeSubreaper() error                { return errPlatform }
func startHost([]string) (pid int, _ error) { return 0, errPlatform }
func reapAll(int) status                    { return status{Ended: true} }
func terminateGroup(int)                    {}
func killTree(int)                          {}
func descendants(int) []int                 { return nil }
func residentSet(int) int64                 { return 0 }
func outOfMemoryKills() int64               { return 0 }
