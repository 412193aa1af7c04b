//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package main

import "os"

func hideTyping(*os.File) (end func()) { return func() {} }
